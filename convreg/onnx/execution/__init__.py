"""Models at work: sessions, the choice of the engine, and the reference engine."""
