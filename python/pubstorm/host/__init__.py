"""Machines: what they offer, and what a plan needs from them."""
