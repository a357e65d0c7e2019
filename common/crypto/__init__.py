"""Paillier arithmetic over vectors: pure functions of numbers, keys and entropy, without I/O."""
