"""Rules of the schema, checked on rows: coercion, row rules, keyed rules, integrity."""
