planner_src := $(notdir $(wildcard planner/*.c))
# Loops over all neurons of a window, or all sizes of a cache: vectorised, to the same results (no flag here changes any).
$(B)/planner/alarms.o $(B)/planner/foretell_lists.o $(B)/planner/replay_prefixes.o: CFLAGS_file += -O3 -fno-math-errno
