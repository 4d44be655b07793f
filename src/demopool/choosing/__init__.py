"""``choose``: candidates race, a rule decides, and the answer says why."""
