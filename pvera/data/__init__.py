"""Data sets: images and texts, decoded once, checked before they are used."""
