# Test programs print TAP and exit 0 (pass), 1 (fail) or 77 (skip); scripts likewise. They may link any
# module of any program: the linker takes from the archives what each one names. Scripts get BIN, the folder of
# the programs, and TOOLS, that of the helpers in tests/tools.
TEST_DIRS  := unit kernels formats
TEST_PROGS := $(patsubst %.c,$(B)/%,$(wildcard $(TEST_DIRS:%=tests/%/test_*.c)))
TEST_SCRIPTS := $(sort $(wildcard tests/cli/*.sh tests/e2e/*.sh))
TEST_TOOLS := $(patsubst %.c,$(B)/%,$(wildcard tests/tools/*.c))
TEST_LIBS  := $(PROGRAMS:%=$(B)/%.a) $(B)/common/offline.a $(B)/common.a

$(TEST_PROGS) $(TEST_TOOLS): $(B)/%: $(B)/%.o $(TEST_LIBS)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(TEST_LIBS) $(LDLIBS_planner)

.PHONY: check check-units
check-units: $(TEST_PROGS)
	$(Q)tests/run.sh $(B)/tests $(TEST_PROGS)
check: all $(TEST_PROGS) $(TEST_TOOLS)
	$(Q)BIN=$(BIN) TOOLS=$(B)/tests/tools tests/run.sh $(B)/tests $(TEST_PROGS) $(TEST_SCRIPTS)
