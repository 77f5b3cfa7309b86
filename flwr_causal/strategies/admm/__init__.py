"""Methods by consensus ADMM: NOTEARS-ADMM, NOTEARS-MLP-ADMM, 2Dbn."""
