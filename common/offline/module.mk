common/offline_src := $(patsubst common/offline/%,%,$(wildcard common/offline/*.c common/offline/*/*.c))
$(B)/common/offline/%.o: CPPFLAGS_file += $(shell pkg-config --cflags hdf5-serial)
$(B)/common/offline/linalg.o: CPPFLAGS_file += $(shell pkg-config --cflags openblas lapacke)
# The hardware database is created from its published schema: the file becomes a string at build time.
$(B)/common/offline/hwdb/hwdb.o: CPPFLAGS_file += -I$(B)
$(B)/common/offline/hwdb/hwdb.o: $(B)/hwdb_sql.inc
$(B)/hwdb_sql.inc: schemas/hwdb.sql
	@mkdir -p $(@D)
	$(Q)sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $< > $@
