"""The API that programs import: models, sessions, streams, their options and records."""
