"""From runs to evidence: tables and pages made of what runs have recorded. Reads folders, needs no JAX."""
