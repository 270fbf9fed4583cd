profiler_src := $(filter-out probe/%,$(patsubst profiler/%,%,$(wildcard profiler/*.c profiler/*/*.c)))
