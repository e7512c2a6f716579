"""One linear map for the whole space."""
