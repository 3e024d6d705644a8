"""What programs import: models, sessions, streams, their options and records."""
