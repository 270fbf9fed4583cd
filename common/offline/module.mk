common/offline_src := $(notdir $(wildcard common/offline/*.c))
$(B)/common/offline/%.o: CPPFLAGS += $(shell pkg-config --cflags hdf5-serial)
