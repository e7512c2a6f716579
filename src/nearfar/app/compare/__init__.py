"""Which distance should I use on my data, and is it worth it?"""
