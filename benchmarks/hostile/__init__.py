"""Hostile and malformed inputs, kind by kind, for `benchmarks/campaign.py`."""
