"""What flowrl learns, measured: `python -m gates` trains every row of the table with five seeds and writes docs/results.md."""
