"""Speed and memory compared with straightforward versions of the same jobs: ``make ratios``.

Our code and the baseline run in turns in one process; the figure is the median of the turns'
ratios, because times vary with the machine and ratios within one run hardly do. The dtype is
float32. The cores must be otherwise idle; the command warns if they are not.
"""
