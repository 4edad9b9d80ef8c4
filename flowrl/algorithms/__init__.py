"""Prebuilt algorithms, one file each: config, loss and plan."""
