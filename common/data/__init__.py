"""Reading, identifying, splitting and scaling a party's own rows; nothing in here sends anything."""
