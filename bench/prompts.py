"""Texts to go on from: prose, numbers, code, German, dialogue, lists."""

from __future__ import annotations

from typing import Final

PROMPTS: Final[tuple[str, ...]] = (
    "The lighthouse keeper climbed the stairs one last time. From the top he could see",
    "The population of the city grew from 12,400 in 1850 to 31,750 in 1900 and",
    'def is_prime(n):\n    """Return True if n is a prime number."""\n    if n < 2:\n',
    "Die Stadt Wien ist die Hauptstadt von Österreich. Sie liegt an der Donau und",
    "Photosynthesis is the process by which plants use sunlight, water and carbon dioxide to",
    '"Where have you been?" asked Anna. "I waited for an hour."\n"I am sorry," said Tom,',
    "Ingredients:\n- 2 cups of flour\n- 1 teaspoon of salt\n- 3 eggs\n\nDirections:\n1.",
    "The court held that the contract was void because the seller had failed to",
    "Dear Ms. Baker,\n\nThank you for your letter of 3 March 2021. I am writing to",
    "Q: A train travels 60 miles in 1.5 hours. What is its average speed?\nA:",
    "<html>\n<head>\n<title>Contact us</title>\n</head>\n<body>\n",
    "Once upon a time there was an old king who had three daughters. The youngest",
)
# Short enough a choice to be repeated for every gamma: prose, numbers, code, science. All are in
# English and Python, which the default draft knows; see `bench.acceptance` for German.
FOUR_PROMPTS: Final = (*PROMPTS[:3], PROMPTS[4])
