"""The formulas: parts, and the methods composed of them. No file, clock or global is read here."""
