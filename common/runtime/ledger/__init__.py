"""What left a party and what reached it: written down before it leaves, and compared afterwards."""
