def text_statistics(text: str) -> dict:
    """Counts the words and lines of a text.

    Args:
        text: The text to count.
    """
    return {"words": len(text.split()), "lines": len(text.splitlines())}
