"""Single operations of this library beside phe and the fastest Paillier libraries that install here."""
