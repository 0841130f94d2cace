"""Players that record the data: trained here from nothing, shipped as small weights."""
