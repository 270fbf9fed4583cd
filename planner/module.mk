planner_src := $(notdir $(wildcard planner/*.c))
# Loops over all neurons of a window: vectorised, to the same results (no flag here changes any).
$(B)/planner/alarms.o $(B)/planner/foretell_lists.o: CFLAGS += -O3 -fno-math-errno
