"""Many runs: which there are, how far each is, and who makes them, on this machine or on many."""
