"""Files made by real programs, each with facts at known places: what readers, chunks and labels are proved with."""
