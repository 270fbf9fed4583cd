# A program of its own, and a library of the profiler: no offline package is needed.
profiler/probe_src := $(patsubst profiler/probe/%,%,$(wildcard profiler/probe/*.c))
# One file of at most 2 MiB: what is relocated at each start, and the gap before what is read-only then, are left out.
ifneq ($(STATIC),)
$(BIN)/thermo-probe: LDFLAGS_own := $(filter-out -static-pie -Wl$(comma)-z$(comma)relro%,$(LDFLAGS_own)) -static -Wl,-z,norelro,-z,noexecstack
endif
