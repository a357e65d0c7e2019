"""The library under the three parties, in floors (docs/decisions/0001-package-names.md)."""
