"""The status: every stage on the way of a URL on one screen, and what holds things up.

Comes from the work area and the queue, read in bounded statements; goes to whoever shows it. `stages` reads, `holdups`
puts what is wrong into words, worst first, each with the command to try, and `progress` counts how far some hosts are.
"""
