"""Files that clients upload: kept once, sealed, within quotas, until they expire (guarantee §14.5)."""
