"""Models at work: sessions, the choice of the engine, the reference engine, and graphs cut between both."""
