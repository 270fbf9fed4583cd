profiler_src := $(notdir $(wildcard profiler/*.c))
