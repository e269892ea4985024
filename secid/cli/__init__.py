"""The commands as they are typed."""
