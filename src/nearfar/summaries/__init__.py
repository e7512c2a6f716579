"""Summaries of data: class statistics, sets, Gaussians, neighbor graphs and supervision."""
