"""What both languages share: places in a text, diagnostics, grammars."""
