"""One text: drafted, verified, settled.

`rounds` decides and knows no I/O (over `written`: what stands, and `drafting`: what is drawn);
`drafted` carries it out over a session, with the blocks under way in `flight`.
"""
