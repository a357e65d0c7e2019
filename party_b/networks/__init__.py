"""Jobs with networks as the active party conducts them: stage 1 with the others, stage 2 alone."""
