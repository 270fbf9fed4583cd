planner_src := $(patsubst planner/%,%,$(wildcard planner/*.c planner/*/*.c))
# Loops over all neurons of a window, or all sizes of a cache: vectorised, to the same results (no flag here changes any).
$(B)/planner/predict/false_positives.o $(B)/planner/predict/predicted_lists.o $(B)/planner/replay/replay_prefixes.o: CFLAGS_file += -O3 -fno-math-errno
