"""Studies on real images: from pixels to the page of ``demopool paper``, by one command each."""
