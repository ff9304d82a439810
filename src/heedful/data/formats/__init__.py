"""Readers of file formats: they get bytes that have been checked, and cannot execute what they read."""
