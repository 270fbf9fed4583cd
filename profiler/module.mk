profiler_src := $(patsubst profiler/%,%,$(wildcard profiler/*.c profiler/*/*.c))
