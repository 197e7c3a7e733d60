"""Assertions that several modules share."""

import re

import pytest


def fails(words, call, kinds=(ValueError, TypeError)):
    """The call raises one of `kinds`, nothing else, and its text holds all the words."""
    with pytest.raises(Exception) as caught:
        call()
    assert isinstance(caught.value, kinds), repr(caught.value)
    text = str(caught.value)
    for word in words:
        assert re.search(re.escape(str(word)), text, re.IGNORECASE), f"{word!r} is not in: {text}"
