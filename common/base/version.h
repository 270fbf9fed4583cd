#ifndef COMMON_BASE_VERSION_H
#define COMMON_BASE_VERSION_H

#define THERMO_VERSION "0.1.0"

/* Revisions of the formats, apart from the software's version. See schemas/. */
#define TRACE_REVISION 1
#define HWDB_REVISION 1
#define PLAN_REVISION 1
#define PACK_REVISION 1

/* One of them as text. */
#define VERSION_STR(x)  #x
#define VERSION_TEXT(x) VERSION_STR(x)

#endif
