import java.io.RandomAccessFile;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;

/**
 * One node of OpenSearch for tests: ClusterNode HOME LOCK PLUGIN...
 *
 * The node reads HOME/config and stops when no test process holds the lock file LOCK, also after a kill of the tests.
 */
public final class ClusterNode extends Node {
    private ClusterNode(Environment environment, List<Class<? extends Plugin>> plugins) {
        super(environment, plugins, true);
    }

    public static void main(String[] words) throws Exception {
        Path home = Path.of(words[0]);
        Settings settings = Settings.builder().put("path.home", home).build();
        Environment environment =
            InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), home.resolve("config"), () -> "");
        LogConfigurator.configure(environment);
        List<Class<? extends Plugin>> plugins = new ArrayList<>();
        for (String name : List.of(words).subList(2, words.length)) {
            plugins.add(Class.forName(name).asSubclass(Plugin.class));
        }
        ClusterNode node = new ClusterNode(environment, plugins);
        node.start();
        try (RandomAccessFile file = new RandomAccessFile(words[1], "rw")) {
            file.getChannel().lock();
        }
        System.exit(0);
    }
}
