"""What the phone app does, without a screen: used by the screen and by the command line."""
