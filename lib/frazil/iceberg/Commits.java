package frazil;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.*;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.spark.Spark3Util;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.SparkSession;

/**
 * Iceberg's commits for Python. Metadata and changes go over as JSON text: one call through py4j costs 0.1 ms or more.
 * Spark's own compiler, Janino, compiles this file at the start of a session. It has no lambdas, and ignores type arguments.
 */
public class Commits {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TAG = "frazil";

    /** Return a handle of a table. It stays open. Its name is no SQL, in which `${…}` would be a variable. */
    public Table load(SparkSession spark, String catalog, String name) throws Exception {
        return Spark3Util.loadIcebergCatalog(spark, catalog).loadTable(TableIdentifier.parse(name));
    }

    /** Return location and JSON of a table's newest metadata, with a line break between; "" if it is still at `known`. */
    public String refresh(Table table, String known) {
        TableMetadata now = operations(table).refresh();
        return known.equals(now.metadataFileLocation()) ? "" : text(now);
    }

    /** Return the JSON of the schema that a table at `base` would have after some steps. Nothing is committed. */
    public String schema(Table table, String base, String steps) throws Exception {
        requireAt(base, operations(table).current());
        BaseTransaction transaction = (BaseTransaction) Transactions.newTransaction(table.name(), operations(table));
        evolve(transaction, JSON.readTree(steps)); // within the transaction, which ends here
        return SchemaParser.toJson(transaction.currentMetadata().schema());
    }

    /**
     * Make one swap on exactly the metadata file `base`: columns, files, summary and properties of a change. The tag moves
     * with a position. If anything was committed since, nothing happens, and CommitFailedException says so. Return what
     * `refresh` does.
     */
    public String swap(Table table, String base, String json) throws Exception {
        TableOperations operations = table.location().startsWith("/") ? new Local(operations(table)) : operations(table);
        TableMetadata metadata = operations.current();
        requireAt(base, metadata);
        JsonNode change = JSON.readTree(json);
        BaseTransaction transaction = (BaseTransaction) Transactions.newTransaction(table.name(), operations);
        requireAt(base, operations.current()); // a transaction begins with a look at the catalog
        Map properties = (Map) JSON.convertValue(change.get("properties"), Map.class);
        if (!properties.isEmpty()) {
            UpdateProperties entries = transaction.updateProperties();
            for (Object name : properties.keySet()) entries.set((String) name, (String) properties.get(name));
            entries.commit();
        }
        evolve(transaction, change.get("columns"));
        SnapshotUpdate update = update(transaction, transaction.table(), change);
        Map summary = (Map) JSON.convertValue(change.get("summary"), Map.class);
        for (Object name : summary.keySet()) update.set((String) name, (String) summary.get(name));
        if (table.location().startsWith("/") || table.location().startsWith("file:")) {
            update.scanManifestsWith(MoreExecutors.newDirectExecutorService()); // Iceberg looks at its own pool each 10 ms
        }
        update.commit(); // within the transaction: writes manifests
        TableMetadata next = transaction.currentMetadata();
        Snapshot snapshot = next.currentSnapshot();
        requireRows(change, snapshot);
        TableMetadata.Builder builder = TableMetadata.buildFrom(next);
        if (summary.containsKey("frazil.position")) {
            builder.setRef(TAG, SnapshotRef.tagBuilder(snapshot.snapshotId()).maxRefAgeMs(Long.MAX_VALUE).build());
        }
        requireAt(base, operations.current());
        operations.commit(metadata, builder.build());
        return text(operations.current()); // a REST catalog's answer has it
    }

    /**
     * Expire old snapshots with the files that only they need; return the ids that are gone. What a tag names stays.
     * One of them is named: then Iceberg compares reachable files. Else it deletes each file that an expired snapshot
     * removed, even a Puffin file of which other vectors are live (apache/iceberg#17456).
     */
    public String expire(Table table, long olderThanMs, int least) throws Exception {
        operations(table).refresh();
        ExpireSnapshots expiry = table.expireSnapshots().expireOlderThan(olderThanMs).retainLast(least);
        List gone = (List) expiry.apply();
        List ids = new ArrayList();
        for (Object snapshot : gone) ids.add(Long.valueOf(((Snapshot) snapshot).snapshotId()));
        if (!gone.isEmpty()) expiry.expireSnapshotId(((Snapshot) gone.get(0)).snapshotId()).commit();
        return JSON.writeValueAsString(ids);
    }

    private SnapshotUpdate update(Transaction transaction, Table table, JsonNode change) throws Exception {
        List add = files(table, change.get("add")), remove = files(table, change.get("remove"));
        List addDeletes = files(table, change.get("add_deletes")), removeDeletes = files(table, change.get("remove_deletes"));
        String kind = change.get("kind").asText();
        Snapshot head = table.currentSnapshot();
        if (kind.equals("append")) {
            AppendFiles append = transaction.newAppend();
            for (Object file : add) append.appendFile((DataFile) file);
            return append;
        }
        if (kind.equals("replace")) {
            OverwriteFiles replace = transaction.newOverwrite().overwriteByRowFilter(Expressions.alwaysTrue());
            for (Object file : add) replace.addFile((DataFile) file);
            return replace;
        }
        if (kind.equals("rewrite")) {
            if (!addDeletes.isEmpty() && removeDeletes.isEmpty()) { // which a rewrite refuses: they come just before it
                RowDelta before = transaction.newRowDelta();
                for (Object file : addDeletes) before.addDeletes((DeleteFile) file);
                before.commit();
                addDeletes = new ArrayList();
            }
            RewriteFiles rewrite = transaction.newRewrite().dataSequenceNumber(change.get("sequence").asLong());
            rewrite.validateFromSnapshot(head.snapshotId());
            for (Object file : add) rewrite.addFile((DataFile) file);
            for (Object file : remove) rewrite.deleteFile((DataFile) file);
            for (Object file : addDeletes) rewrite.addFile((DeleteFile) file);
            for (Object file : removeDeletes) rewrite.deleteFile((DeleteFile) file);
            return rewrite;
        }
        RowDelta delta = transaction.newRowDelta().validateDeletedFiles();
        if (head != null) delta.validateFromSnapshot(head.snapshotId()); // else it searches the whole history for other vectors
        for (Object file : add) delta.addRows((DataFile) file);
        for (Object file : addDeletes) delta.addDeletes((DeleteFile) file);
        for (Object file : removeDeletes) delta.removeDeletes((DeleteFile) file);
        return delta;
    }

    private List files(Table table, JsonNode entries) {
        List found = new ArrayList();
        for (Object entry : entries) {
            Integer number = Integer.valueOf(((JsonNode) entry).get("spec-id").asInt());
            PartitionSpec spec = (PartitionSpec) table.specs().get(number);
            found.add(ContentFileParser.fromJson((JsonNode) entry, spec.toUnbound().bind(schemaOf(table, spec))));
        }
        return found;
    }

    /** Return a schema that has all columns by which a spec partitions: some may be dropped since. */
    private static Schema schemaOf(Table table, PartitionSpec spec) {
        for (Object field : spec.fields()) {
            Integer source = Integer.valueOf(((PartitionField) field).sourceId());
            for (Object schema : table.schemas().values()) {
                if (table.schema().findField(source) == null && ((Schema) schema).findField(source) != null) return (Schema) schema;
            }
        }
        return table.schema();
    }

    /** Change columns by some steps: renames first and on their own, as other columns may take the old names. */
    private static void evolve(Transaction transaction, JsonNode steps) {
        UpdateSchema renames = null, others = null; // a transaction has one update at a time
        for (Object each : steps) {
            JsonNode step = (JsonNode) each;
            if (!step.get("step").asText().equals("rename")) continue;
            if (renames == null) renames = transaction.updateSchema();
            renames.renameColumn(step.get("name").asText(), step.get("to").asText());
        }
        if (renames != null) renames.commit();
        for (Object each : steps) {
            JsonNode step = (JsonNode) each;
            if (step.get("step").asText().equals("rename")) continue;
            if (others == null) others = transaction.updateSchema();
            take(others, step);
        }
        if (others != null) others.commit();
    }

    /** A step is `add`, `widen`, `optional`, `comment` or `drop`, of the column `name`. */
    private static void take(UpdateSchema update, JsonNode step) {
        String does = step.get("step").asText(), name = step.get("name").asText();
        String more = step.has("to") ? step.get("to").asText() : null;
        if (does.equals("add")) {
            update.addColumn(null, name, Types.fromPrimitiveString(more), comment(step));
            if (step.has("after")) place(update, name, step.get("after").asText());
        }
        else if (does.equals("widen")) update.updateColumn(name, Types.fromPrimitiveString(more));
        else if (does.equals("optional")) update.makeColumnOptional(name);
        else if (does.equals("comment")) update.updateColumnDoc(name, more);
        else if (does.equals("drop")) update.deleteColumn(name);
        else throw new IllegalArgumentException("no step of a schema: " + does);
    }

    private static void place(UpdateSchema update, String name, String after) {
        if (after.isEmpty()) update.moveFirst(name);
        else update.moveAfter(name, after);
    }

    private static String comment(JsonNode step) {
        return step.has("comment") ? step.get("comment").asText() : null;
    }

    /** Require that a snapshot has as many live rows as the change says: a second look at what was found and written. */
    private static void requireRows(JsonNode change, Snapshot snapshot) {
        if (!change.hasNonNull("rows")) return;
        Map summary = snapshot.summary();
        long records = Long.parseLong((String) summary.get("total-records"));
        long deleted = Long.parseLong((String) summary.get("total-position-deletes"));
        if (records - deleted != change.get("rows").asLong()) {
            throw new ValidationException("%s rows would be live, not %s", new Object[] {records - deleted, change.get("rows")});
        }
    }

    private static String text(TableMetadata metadata) {
        return metadata.metadataFileLocation() + "\n" + TableMetadataParser.toJson(metadata);
    }

    private static TableOperations operations(Table table) {
        return ((HasTableOperations) table).operations();
    }

    private static void requireAt(String base, TableMetadata metadata) {
        if (!base.equals(metadata.metadataFileLocation())) {
            throw new CommitFailedException("the table is no longer at %s", new Object[] {base});
        }
    }

    /** Reaches a table in a local folder without Hadoop, which starts a process for the mode of each file that it makes. */
    private static class Local implements TableOperations, FileIO {
        private final TableOperations table;

        Local(TableOperations table) { this.table = table; }

        public InputFile newInputFile(String path) {
            return path.startsWith("/") ? Files.localInput(path) : table.io().newInputFile(path);
        }

        public OutputFile newOutputFile(String path) { // a property of the table may name another place for metadata
            return path.startsWith("/") ? Files.localOutput(path) : table.io().newOutputFile(path);
        }

        public void deleteFile(String path) { table.io().deleteFile(path); }
        public FileIO io() { return this; }
        public TableMetadata current() { return table.current(); }
        public TableMetadata refresh() { return table.refresh(); }
        public void commit(TableMetadata base, TableMetadata next) { table.commit(base, next); }
        public String metadataFileLocation(String name) { return table.metadataFileLocation(name); }
        public LocationProvider locationProvider() { return table.locationProvider(); }
        public EncryptionManager encryption() { return table.encryption(); }
        public TableOperations temp(TableMetadata next) { return new Local(table.temp(next)); }
    }
}
