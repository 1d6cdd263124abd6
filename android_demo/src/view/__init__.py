"""The screen: shows the controller's state and calls its actions. Only this room knows Flet."""
