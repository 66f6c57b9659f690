import static io.trino.testing.TestingSession.testSessionBuilder;

import io.trino.plugin.iceberg.IcebergPlugin;
import io.trino.testing.DistributedQueryRunner;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** A Trino on a free port of the loopback interface, with an Iceberg catalog for each file that is named. It ends with its standard input. */
public class TrinoServer {
    public static void main(String[] files) throws Exception {
        try (var trino = DistributedQueryRunner.builder(testSessionBuilder().build()).setWorkerCount(0).build()) {
            trino.installPlugin(new IcebergPlugin());
            for (String file : files) {
                var found = new Properties();
                found.load(Files.newBufferedReader(Path.of(file)));
                Map<String, String> given = new HashMap<>();
                found.forEach((name, value) -> given.put((String) name, (String) value));
                given.remove("connector.name");
                trino.createCatalog(Path.of(file).getFileName().toString().replace(".properties", ""), "iceberg", given);
            }
            System.out.println("READY " + trino.getCoordinator().getBaseUrl().getPort());
            while (System.in.read() >= 0) { }
        }
        System.exit(0);
    }
}
